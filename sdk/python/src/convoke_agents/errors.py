"""The errors between a client and Convoke."""

from __future__ import annotations

import errno
import math
import re
import socket
import ssl
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime

import httpx
from pydantic import ValidationError

from convoke_agents.json_value import parse_json
from convoke_agents.models import FieldError, Problem


class ConvokeError(Exception):
    """Any failure between a client and Convoke. Branch on `code`; the message is for people.

    The server's codes are kept as they are (`instance_does_not_exist`, `invalid_fields`, …). Three are the client's own:
    `unreachable` (no connection, or it broke), `timeout` (no whole response in time) and `unexpected_response`
    (something responded that is not Convoke). After `unreachable` and `timeout` the request may or may not have been
    carried out.
    """

    code: str
    title: str | None
    """The meaning of the code, in the words of the service; None for a code of the client's own."""
    detail: str
    """What happened and what to do about it, without the code and its title."""
    status: int | None
    """The HTTP status; None when there was no response."""
    errors: tuple[FieldError, ...]
    """The fields that the failure is about, such as those that are not valid; empty when it is about none."""
    retry_after_s: int | None
    """How long the server asked to wait; None when it did not."""
    idempotency_key: str | None
    """The key with which a message was sent. When the same message is sent again with it, it is stored at most once."""

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        title: str | None = None,
        status: int | None = None,
        errors: Sequence[FieldError] = (),
        retry_after_s: int | None = None,
    ) -> None:
        # The arguments that unpickling calls this method with. It then restores the other attributes.
        super().__init__(code, detail)
        self.code = code
        self.title = title
        self.detail = detail
        self.status = status
        self.errors = tuple(errors)
        self.retry_after_s = retry_after_s
        self.idempotency_key = None

    def __str__(self) -> str:
        where = self.code if self.status is None else f"{self.code} ({self.status})"
        # When only one field is invalid, the detail already names it.
        fields = [text for text in (f"{each.path} {each.message}" for each in self.errors) if text not in self.detail]
        what = "" if self.title is None else f"{self.title}. "
        return f"{where}: {what}{'; '.join([self.detail, *fields])}"

    @property
    def may_pass(self) -> bool:
        """Whether the failure may pass by itself. A wrong key, for example, stays wrong."""
        if self.status is None:
            return self.code in ("unreachable", "timeout")
        return self.status in (408, 429) or self.status >= 500

    @property
    def is_waited_out(self) -> bool:
        """Whether an agent waits until the failure is over.

        A response that is not from Convoke passes too: a network that the machine has just joined responds with a page
        of its own, and so does a proxy while the service is replaced.
        """
        return self.may_pass or self.code == "unexpected_response"


def error_from_response(response: httpx.Response, text: str, url: str) -> ConvokeError:
    """The error for a response whose status is not a success."""
    status = response.status_code
    retry_after_s = parse_retry_after(response.headers.get("retry-after"), sent_at(response))
    try:
        problem = Problem.model_validate(parse_json(text))
    except (ValueError, ValidationError):
        detail = _of_a_proxy(response, url)
        return ConvokeError("unexpected_response", detail, status=status, retry_after_s=retry_after_s)
    return ConvokeError(
        problem.code,
        problem.detail,
        title=problem.title,
        status=status,
        errors=problem.errors or [],
        retry_after_s=retry_after_s,
    )


def error_from_proxy(response: httpx.Response, url: str) -> ConvokeError:
    """The error for a response whose status is a success and whose body is not the expected JSON."""
    return ConvokeError("unexpected_response", _of_a_proxy(response, url), status=response.status_code)


def _of_a_proxy(response: httpx.Response, url: str) -> str:
    location = response.headers.get("location")
    if location is not None:
        return f"{url} redirects to {location}; redirects are not followed, so give base_url as the address it leads to"
    kind = response.headers.get("content-type", "no content type")
    return (
        f"{url} responded {response.status_code} with {kind}, which is no response of Convoke; "
        "check base_url, and any proxy in between"
    )


def parse_retry_after(value: str | None, now: datetime) -> int | None:
    """Seconds or an HTTP date (RFC 9110, section 10.2.3); anything else counts as absent."""
    if value is None:
        return None
    if re.fullmatch(r"\s*[0-9]{1,9}\s*", value):
        return int(value)
    at = _http_date(value)
    return None if at is None else max(0, math.ceil((at - now).total_seconds()))


def sent_at(response: httpx.Response) -> datetime:
    """When a response was sent, on the clock of its sender, because the clock of this machine may be wrong.

    The header has whole seconds. Where a proxy removes it, the clock of this machine takes its place.
    """
    return _http_date(response.headers.get("date", "")) or datetime.now(timezone.utc)


def _http_date(value: str) -> datetime | None:
    try:
        at = parsedate_to_datetime(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return at.replace(tzinfo=timezone.utc) if at.tzinfo is None else at


_CUT = "the connection was cut; if this goes on, look at the log of Convoke and of any proxy in between"
_CAUSES = {
    errno.ECONNREFUSED: "nothing listens there; is Convoke running (`convoke serve`), and is this its port?",
    errno.ECONNRESET: _CUT,
    errno.EPIPE: _CUT,
    errno.ETIMEDOUT: "the machine does not respond; check the address and any firewall in between",
    errno.EHOSTUNREACH: "there is no way to the machine; check the address and the network",
    errno.ENETUNREACH: "there is no way to the machine; check the address and the network",
}


def error_from_failure(error: BaseException, url: str) -> ConvokeError:
    """The error for a request that failed before a whole response arrived."""
    return ConvokeError("unreachable", f"cannot reach {url}: {_why(error)}")


def _why(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    for each in _chain(error):
        if isinstance(each, socket.gaierror):
            return "the host name is not known; check base_url for a typing error, and the network of this machine"
        if isinstance(each, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted ({each.verify_message}); trust it with SSL_CERT_FILE"
        if isinstance(each, ssl.SSLError) and each.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
            return "it does not speak TLS there; use http:// in base_url, or the port that speaks TLS"
        if isinstance(each, httpx.RemoteProtocolError):
            return f"{_CUT} ({each})"
        if isinstance(each, OSError) and each.errno in _CAUSES:
            return f"{_CAUSES[each.errno]} ({errno.errorcode[each.errno]})"
        if str(each):
            text = str(each)
    return text


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, its cause, the cause of its cause, and so on; for a group of errors, also each of its errors."""
    waiting = [error]
    for _ in range(20):
        if not waiting:
            return
        each = waiting.pop(0)
        if each is None:
            continue
        yield each
        waiting.append(each.__cause__ or each.__context__)
        waiting.extend(getattr(each, "exceptions", ()))
