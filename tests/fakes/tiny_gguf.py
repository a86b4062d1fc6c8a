"""A tiny random Llama model as GGUF, with a tokenizer trained on the spot: no hub, no download.

Output rows of special and non-printable tokens are zero, so that a stream never ends early and never emits partial
UTF-8: every answer has exactly max_tokens tokens. Width 128 with 2 layers is 3.5 MB, 512 with 8 is 92 MB.
"""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONTEXT = 4096
SPREAD = 0.05  # standard deviation of the random weights


def write(path: Path, width: int = 128, layers: int = 2) -> None:
    """Write the model to `path`. The same arguments give the same bytes of weights."""
    trained = _trained_tokenizer()
    vocabulary: dict[str, int] = trained["model"]["vocab"]
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    writer = gguf.GGUFWriter(str(path), "llama")
    _describe(writer, width, layers, len(tokens))
    _add_tokenizer(writer, tokens, trained["model"]["merges"])
    _add_weights(writer, width, layers, tokens)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _trained_tokenizer() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    letters = list("etaoinshrdlucmfwypvbgk")
    words = ["".join(rng.choice(letters, rng.integers(2, 9))) for _ in range(6000)]
    corpus = [" ".join(rng.choice(words, 12)) for _ in range(4000)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=2048, special_tokens=list(SPECIAL), initial_alphabet=alphabet)
    tokenizer.train_from_iterator(corpus, trainer)
    trained: dict[str, Any] = json.loads(tokenizer.to_str())
    return trained


def _describe(writer: gguf.GGUFWriter, width: int, layers: int, vocabulary_size: int) -> None:
    heads = max(1, width // 32)
    writer.add_name("tiny-random-llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(2 * width)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(width // heads)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(vocabulary_size)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)


def _add_tokenizer(writer: gguf.GGUFWriter, tokens: list[str], merges: list[Any]) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(
        [gguf.TokenType.CONTROL if token in SPECIAL else gguf.TokenType.NORMAL for token in tokens]
    )
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT)


def _add_weights(writer: gguf.GGUFWriter, width: int, layers: int, tokens: list[str]) -> None:
    rng = np.random.default_rng(0)

    def random(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) * SPREAD).astype(np.float32)

    writer.add_tensor("token_embd.weight", random(len(tokens), width))
    writer.add_tensor("output_norm.weight", np.ones(width, np.float32))
    head = random(len(tokens), width)
    head[[not _is_printable(token) for token in tokens]] = 0
    writer.add_tensor("output.weight", head)
    for layer in range(layers):
        prefix = f"blk.{layer}."
        for norm in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"{prefix}{norm}.weight", np.ones(width, np.float32))
        for matrix in ("attn_q", "attn_k", "attn_v", "attn_output"):
            writer.add_tensor(f"{prefix}{matrix}.weight", random(width, width))
        for matrix in ("ffn_gate", "ffn_up"):
            writer.add_tensor(f"{prefix}{matrix}.weight", random(2 * width, width))
        writer.add_tensor(f"{prefix}ffn_down.weight", random(width, 2 * width))


def _is_printable(token: str) -> bool:
    """Whether the token is plain ASCII text; U+0120 is the byte-level tokenizer's space."""
    if token in SPECIAL:
        return False
    return all(
        (character.isascii() and character.isprintable()) or character == "\u0120" for character in token
    )
