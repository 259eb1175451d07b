"""The results of pushes, as the service takes them."""

from __future__ import annotations

from typing import Any, TypedDict

# The most results in one request; fewer when their bodies are long.
_RESULTS_MAX = 32
# The most characters of all bodies in a request: JSON makes at most six bytes of one character, and a request has a
# megabyte. A single result may have a body of RESULT_BODY_BYTES_MAX.
_RESULTS_CHARS_MAX = 128 * 1024
# The longest body of a result that the service accepts.
RESULT_BODY_BYTES_MAX = 64 * 1024
_WHY_CHARS_MAX = 500
_RETRY_AFTER_CHARS_MAX = 200


class Result(TypedDict, total=False):
    """The response of the agent, or why there is none."""

    status_code: int
    body: str
    retry_after: str
    not_reached: str


def response_result(status_code: int, body: str | None, retry_after: str | int | None) -> Result:
    """A result as the service takes it: a text that is too long is cut, and a status that is none becomes 502."""
    if status_code not in range(200, 600):
        return {"status_code": 502, "body": f"the status {status_code} is none of 200 to 599"}
    result: Result = {"status_code": status_code}
    if body is not None:
        # A character that was cut in the middle is left out.
        result["body"] = body.encode(errors="replace")[:RESULT_BODY_BYTES_MAX].decode(errors="ignore")
    if retry_after is not None and len(str(retry_after)) <= _RETRY_AFTER_CHARS_MAX:
        result["retry_after"] = str(retry_after)
    return result


def not_reached_result(why: str) -> Result:
    """A result that says that the push did not reach the agent."""
    return {"not_reached": why[:_WHY_CHARS_MAX] or "no reason was given"}


def is_success(result: Result) -> bool:
    return 200 <= result.get("status_code", 0) < 300


class ResultQueue:
    """Results that are not handed in yet, the oldest first."""

    def __init__(self) -> None:
        self._results: list[dict[str, Any]] = []

    def __len__(self) -> int:
        return len(self._results)

    def add(self, delivery_id: str, attempt: int, result: Result) -> None:
        self._results.append({"delivery_id": delivery_id, "attempt": attempt, **result})

    def take(self) -> list[dict[str, Any]]:
        """The results that fit into one request."""
        chars = 0
        count = 0
        for result in self._results[:_RESULTS_MAX]:
            chars += len(result.get("body", ""))
            if count > 0 and chars > _RESULTS_CHARS_MAX:
                break
            count += 1
        taken, self._results = self._results[:count], self._results[count:]
        return taken

    def put_back(self, results: list[dict[str, Any]]) -> None:
        """Puts back the results of a request that failed."""
        self._results = results + self._results
