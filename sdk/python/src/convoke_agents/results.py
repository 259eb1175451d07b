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
# How often a result is refused, alone in its request, before its text is left out.
_REFUSALS_MAX = 3
# How many requests with results are refused before results go one by one.
_REFUSED_TOGETHER_MAX = 2
# Takes the place of a text that something between this machine and Convoke refuses.
_LEFT_OUT = "the text of this result was left out: something between this machine and Convoke refuses it"


class Result(TypedDict, total=False):
    """The response of the agent, or why there is none."""

    status_code: int
    body: str
    retry_after: str
    not_reached: str


def response_result(status_code: int, body: str | None, retry_after: str | int | None) -> Result:
    """A result as the service takes it: a text that is too long is cut, and a number that is no status becomes 502."""
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
    """Results that are not handed in yet, the oldest first.

    A firewall may refuse a request because of the text of one result. Such a result must not hold up the others, nor the
    pushes. So after two refusals the results go one by one, in requests that bring nothing else. A result that is
    refused alone goes behind the others. At its third refusal its text is left out.
    """

    def __init__(self) -> None:
        self._results: list[dict[str, Any]] = []
        # How many requests with results were refused in a row.
        self._refused_together = 0
        # How often each result was refused for good when it was alone in its request.
        self._refusals: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._results)

    def add(self, delivery_id: str, attempt: int, result: Result) -> None:
        self._results.append({"delivery_id": delivery_id, "attempt": attempt, **result})

    @property
    def is_one_by_one(self) -> bool:
        """Whether results go one by one, because something refused requests with results."""
        return self._refused_together >= _REFUSED_TOGETHER_MAX

    def take(self) -> list[dict[str, Any]]:
        """The results that fit into one request."""
        if self.is_one_by_one:
            taken, self._results = self._results[:1], self._results[1:]
            return taken
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

    def arrived(self, results: list[dict[str, Any]]) -> None:
        """The service has these results."""
        for result in results:
            self._refusals.pop(result["delivery_id"], None)
        if results and not self._refusals:
            self._refused_together = 0

    def refused(self, results: list[dict[str, Any]], *, is_alone: bool, is_for_good: bool) -> str | None:
        """Puts back the results of a request to which something else than Convoke responded.

        Returns the id of the delivery whose text was left out; None: none.

        :param is_alone: Whether the results went one by one when the request was made.
        :param is_for_good: False when the same request may succeed later.
        """
        if not results:
            return None
        if not is_alone:
            self._refused_together += 1
            self.put_back(results)
            return None
        result = results[0]
        delivery_id: str = result["delivery_id"]
        refusals = self._refusals.get(delivery_id, 0) + (1 if is_for_good else 0)
        self._refusals[delivery_id] = refusals
        is_left_out = is_for_good and refusals == _REFUSALS_MAX
        self._results.append(_without_text(result) if is_left_out else result)
        return delivery_id if is_left_out else None


def _without_text(result: dict[str, Any]) -> dict[str, Any]:
    about = {"delivery_id": result["delivery_id"], "attempt": result["attempt"]}
    if "not_reached" in result:
        return {**about, "not_reached": _LEFT_OUT}
    return {**about, "status_code": result["status_code"], "body": _LEFT_OUT}
