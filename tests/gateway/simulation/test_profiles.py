"""The constants that every figure depends on."""

import pytest

from gateway.simulation.profiles import GPU, PROFILES

ENGINES = {  # base and per sequence (ms), per prefill token (us), per KV token (ns), engines, seats, KV tokens, context
    "gpu": (15, 0.2, 30, 80, 2, 96, 60_000, 18_000),
    "tight": (15, 0.2, 30, 80, 2, 96, 60_000, 18_000),
    "cpu8": (7.7, 0.8, 500, 0, 2, 8, 3_072, 2_048),
    "cpu32": (7.7, 0.8, 500, 0, 2, 32, 49_152, 8_192),
    "llama8": (3.7, 1.6, 500, 0, 2, 8, 0, 8_192),
    "llama4": (3.7, 1.6, 500, 0, 2, 4, 0, 8_192),
}
LOADS = {"gpu": 11, "tight": 11, "cpu8": 7.8, "cpu32": 2.7, "llama8": 2.0, "llama4": 1.8}


@pytest.mark.parametrize("name", PROFILES)
def test_an_engine_has_the_constants_of_its_specification(name):
    profile = PROFILES[name]
    engine = profile.engine
    told = (
        engine.base_s * 1e3, engine.per_seq_s * 1e3, engine.per_prefill_s * 1e6, engine.per_kv_s * 1e9,
        profile.engines, engine.seats, engine.kv_tokens, engine.context_tokens,
    )  # fmt: skip
    assert told == pytest.approx(ENGINES[name])
    assert profile.base_per_s == LOADS[name]
    assert profile.name == name


@pytest.mark.parametrize("name", PROFILES)
def test_tiers_share_the_load_and_lower_ones_are_more_patient(name):
    tiers = PROFILES[name].tiers
    assert sum(tier.share for tier in tiers) == pytest.approx(1.0)
    for field in (
        "ttft_objective_s",
        "tpot_objective_s",
        "first_token_patience_s",
        "gives_up_s",
        "max_retries",
    ):
        values = [getattr(tier, field) for tier in tiers]
        assert values == sorted(values)
    for tier in tiers:
        assert tier.first_token_patience_s > tier.ttft_objective_s


def test_every_jump_is_eightfold():
    for profile in PROFILES.values():
        if profile.jump_prompts is not None:
            short, long = profile.jump_prompts
            assert long == 8 * short
    assert GPU.jump_prompts == (500.0, 4000.0)
