"""Turns the events of a streamed answer into the one JSON answer that the engine would have given without a stream.

Nothing is invented: members that no event held are absent, usage is the engine's own, and a stream that did not end
has no answer. `Aggregate` is what all builders promise; `for_dialect` chooses one.
"""

from gateway.aggregate.builders import Aggregate, NoAnswerError, for_dialect

__all__ = ["Aggregate", "NoAnswerError", "for_dialect"]
