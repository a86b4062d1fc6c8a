"""The words of refusals, in English and Chinese. A tier or a tenant may replace them (`refusal_messages`, by language).

`{retry}` becomes a sentence that says when to try again, or nothing where only a later time helps.
"""

# ruff: noqa: RUF001  # Chinese punctuation is meant

from collections.abc import Mapping
from functools import lru_cache

from gateway.core.vocabulary import Fault, ShedReason

LANGUAGES = ("en", "zh")

_EN: dict[str, str] = {
    ShedReason.RATE_LIMITED: "Your request rate is above its limit.{retry}",
    ShedReason.TOKEN_LIMITED: "Your LLM token rate is above its limit.{retry}",
    ShedReason.CONCURRENCY_LIMITED: "You have as many requests in progress as your limit allows.{retry}",
    ShedReason.QUOTA_EXHAUSTED: "Your monthly LLM token quota is used up. It starts anew next month.",
    ShedReason.RETRY_BUDGET: "Too many retries are on their way while the model is at capacity.{retry}",
    ShedReason.QUEUE_FULL: "The model is at capacity and its queue is full.{retry}",
    ShedReason.EARLY_DROP: "The model is at capacity: your request could not start in time.{retry}",
    ShedReason.FAST_REJECT: "The model is at capacity for requests of this priority.{retry}",
    ShedReason.WATERMARK: "The model is at capacity: too many requests are waiting at its engines.{retry}",
    ShedReason.DISPLACED: "The model is at capacity: your request gave way to others in the queue.{retry}",
    ShedReason.QUEUE_TIMEOUT: "The model is at capacity: your request waited in the queue for as long as it may.{retry}",
    ShedReason.DEADLINE: "The model is at capacity: your request could not be answered before its deadline.{retry}",
    ShedReason.ENGINE_BUSY: "The model's engine is busy.{retry}",
    ShedReason.BREAKER_OPEN: "The model is temporarily unavailable.{retry}",
    ShedReason.NO_BACKEND: "No engine is available for this model.{retry}",
    ShedReason.GATEWAY_OVERLOAD: "The gateway is at capacity.{retry}",
    ShedReason.DRAINING: "This gateway is shutting down; another one will answer.{retry}",
    Fault.CONNECTION: "The model's engine could not be reached or closed the connection.",
    Fault.SERVER_ERROR: "The model's engine failed.",
    Fault.FIRST_BYTE_TIMEOUT: "The model's engine did not begin to answer in time.",
    Fault.IDLE_TIMEOUT: "The model's engine stopped answering.",
    Fault.TOTAL_TIMEOUT: "The answer took longer than is allowed.",
    Fault.MIDSTREAM: "The model's engine failed while it was answering.",
}
_ZH: dict[str, str] = {
    ShedReason.RATE_LIMITED: "请求频率已超过限额。{retry}",
    ShedReason.TOKEN_LIMITED: "LLM 令牌速率已超过限额。{retry}",
    ShedReason.CONCURRENCY_LIMITED: "同时进行的请求数已达到限额。{retry}",
    ShedReason.QUOTA_EXHAUSTED: "本月的 LLM 令牌配额已用完，下月重新计算。",
    ShedReason.RETRY_BUDGET: "当前大模型算力已达承载上限，且重试请求过多。{retry}",
    ShedReason.QUEUE_FULL: "当前大模型算力已达承载上限，排队已满。{retry}",
    ShedReason.EARLY_DROP: "当前大模型算力已达承载上限，请求无法按时开始处理。{retry}",
    ShedReason.FAST_REJECT: "当前大模型算力已达此优先级的承载上限。{retry}",
    ShedReason.WATERMARK: "当前大模型算力已达承载上限，推理引擎中等待的请求过多。{retry}",
    ShedReason.DISPLACED: "当前大模型算力已达承载上限，请求已在队列中让位。{retry}",
    ShedReason.QUEUE_TIMEOUT: "当前大模型算力已达承载上限，请求排队超时。{retry}",
    ShedReason.DEADLINE: "当前大模型算力已达承载上限，请求无法在期限内完成。{retry}",
    ShedReason.ENGINE_BUSY: "推理引擎繁忙。{retry}",
    ShedReason.BREAKER_OPEN: "模型暂时不可用。{retry}",
    ShedReason.NO_BACKEND: "该模型当前没有可用的推理引擎。{retry}",
    ShedReason.GATEWAY_OVERLOAD: "网关已达承载上限。{retry}",
    ShedReason.DRAINING: "本网关正在停机，请由其他网关处理。{retry}",
    Fault.CONNECTION: "无法连接推理引擎，或连接被其关闭。",
    Fault.SERVER_ERROR: "推理引擎发生故障。",
    Fault.FIRST_BYTE_TIMEOUT: "推理引擎未能按时开始应答。",
    Fault.IDLE_TIMEOUT: "推理引擎停止了应答。",
    Fault.TOTAL_TIMEOUT: "应答时间超过了允许的上限。",
    Fault.MIDSTREAM: "推理引擎在应答过程中发生故障。",
}
_BY_LANGUAGE = {"en": _EN, "zh": _ZH}


def retry_sentence(language: str, after_s: int | None) -> str:
    """When to try again, or nothing."""
    if after_s is None:
        return ""
    if language == "zh":
        return f"请在 {after_s} 秒后重试。"
    return f" Please try again in {after_s} second{'s' if after_s != 1 else ''}."


def shed_text(
    reason: ShedReason, language: str, after_s: int | None, replaced: tuple[Mapping[str, str], ...] = ()
) -> str:
    """The message of a refusal: the first replacement that has the language, else ours."""
    retry = retry_sentence(language, after_s)
    for messages in replaced:
        own = messages.get(language)
        if own:
            return own.replace("{retry}", retry).replace(
                "{seconds}", str(after_s if after_s is not None else "")
            )
    return _own_text(reason, language, retry)


@lru_cache(maxsize=512)
def _own_text(reason: ShedReason, language: str, retry: str) -> str:
    return _BY_LANGUAGE[language][reason].replace("{retry}", retry)


def fault_text(fault: Fault, language: str) -> str:
    """The message for a fault of a backend."""
    return _BY_LANGUAGE[language].get(fault) or _BY_LANGUAGE[language][Fault.SERVER_ERROR]
