"""Requests to the API: the address, the credentials, the deadline, and errors instead of failures."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import re
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from threading import TIMEOUT_MAX
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import httpx
from pydantic import BaseModel, ValidationError

from convoke_agents.errors import ConvokeError, error_from_failure, error_from_proxy, error_from_response
from convoke_agents.json_text import json_text
from convoke_agents.json_value import parse_json
from convoke_agents.number_option import check_number

TIMEOUT_S = 10.0
_TIMEOUT_S_MIN = 0.001
# The service gives a slow machine 30 s to respond to a test.
TEST_TIMEOUT_S = 40.0
# An instance is deleted in one call. With a million pending deliveries that takes some 10 s.
DELETE_TIMEOUT_S = 60.0
ATTEMPTS_MAX = 4
# When a server asks for a longer pause, the SDK does not retry: the caller decides.
RETRY_WAIT_S_MAX = 30
# httpx takes no longer URL. A service takes 16 KiB.
_URL_LENGTH_MAX = 65_536
_DEFAULT_PORTS = {"http": 80, "https": 443}

T = TypeVar("T")


@dataclass(frozen=True)
class Target:
    """The URL of Convoke, and the credentials of the caller."""

    base_url: str
    api_key: str | None
    timeout_s: float

    @classmethod
    def of(cls, base_url: str, api_key: str | None, timeout_s: float) -> Target:
        """:raises ValueError: base_url is no http or https URL, timeout_s is out of its range, or api_key is no key"""
        check_number("timeout_s", timeout_s, _TIMEOUT_S_MIN, TIMEOUT_MAX)
        normal = _normal(base_url)
        if normal is None:
            raise ValueError(f"base_url must be an http or https URL such as http://127.0.0.1:8080, not {base_url}")
        if "@" in urlsplit(base_url).netloc:
            raise ValueError("base_url must not hold a user name or password; give the key as api_key")
        # A key that was read from a file may end with a line break.
        key = (api_key or "").strip()
        _check_header("api_key", key)
        return cls(normal.rstrip("/"), key or None, timeout_s)

    def headers(self) -> dict[str, str]:
        headers = {
            "accept": "application/json",
            "user-agent": f"convoke-agents/{version('convoke-agents')} Python/{platform.python_version()}",
        }
        if self.api_key is not None:
            headers["authorization"] = f"Bearer {self.api_key}"
        return headers

    def url_of(self, path: str, query: Mapping[str, Any] | None) -> str:
        """:raises ValueError: the URL would be too long to be sent"""
        words = {
            name: str(value).lower() if isinstance(value, bool) else value for name, value in (query or {}).items()
        }
        # `doseq` repeats a parameter for each value of a list.
        text = urlencode(words, doseq=True, quote_via=quote)
        url = f"{self.base_url}{path}{'?' if text else ''}{text}"
        if len(url) > _URL_LENGTH_MAX:
            raise ValueError(f"the URL of {path[:100]} would have {len(url)} characters: give shorter ids or filters")
        return url

    def link_here(self, link: str) -> str:
        """The link of an invite, with the address at which this client reaches the service."""
        return f"{self.base_url}{urlsplit(link).path}"

    def secret_of(self, link: str) -> str:
        """The secret in the link of an invite.

        :raises ValueError: it is no link of this service
        """
        beginning = f"{self.base_url}/invite/"
        url = _normal(link) or ""
        if not url.startswith(beginning):
            raise ValueError(f"a link of an invite begins with {beginning}")
        return url[len(beginning) :].rstrip("/")

    def timeout(self, url: str, timeout_s: float) -> ConvokeError:
        detail = f"no whole response from {url} within {timeout_s:g} s; it may have been carried out all the same"
        return ConvokeError("timeout", detail)


def _normal(url: str) -> str | None:
    """The address and the path of a URL, with a host in small letters and without the default port.

    So two URLs of one service can be compared as texts. None: it is no http or https URL.
    """
    try:
        parts = urlsplit(url)
        number = parts.port
    except ValueError:
        return None
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        return None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    port = "" if number in (None, _DEFAULT_PORTS[parts.scheme]) else f":{number}"
    return f"{parts.scheme}://{host}{port}{parts.path}"


def segment(text: str | int) -> str:
    """An id as one segment of a path.

    An empty id would address the list instead, and `.` and `..` cannot be written: URL parsers resolve them even when
    they are percent-encoded.

    :raises ValueError: the id is one of these
    """
    if text in ("", ".", ".."):
        raise ValueError(f"an id that goes into the path cannot be {json.dumps(text)}")
    return quote(str(text), safe="")


def read(response: httpx.Response, text: str, url: str, into: type[T] | None) -> T:
    """Turns a response into the result: a model, a text, or None."""
    if not response.is_success:
        raise error_from_response(response, text, url)
    if into is None:
        if text:
            raise error_from_proxy(response, url)
        return None  # type: ignore[return-value]
    if into is str:
        # The metrics are the only text.
        if not text.startswith("# HELP "):
            raise error_from_proxy(response, url)
        return text  # type: ignore[return-value]
    assert issubclass(into, BaseModel)
    try:
        return into.model_validate(parse_json(text))
    except (ValueError, ValidationError) as error:
        raise error_from_proxy(response, url) from error


def is_backup(response: httpx.Response) -> bool:
    """Whether the body is the copy of a backup. A proxy may respond with 200 and a page of its own."""
    return response.status_code == 200 and response.headers.get("content-type") == "application/octet-stream"


def overloaded_wait_s(error: ConvokeError, attempt: int, attempts_max: int) -> float | None:
    """How long to wait before a request to an overloaded service is repeated; None for no retry."""
    if error.code != "overloaded" or error.retry_after_s is None or attempt >= attempts_max:
        return None
    return error.retry_after_s if error.retry_after_s <= RETRY_WAIT_S_MAX else None


class Requests:
    """Requests that block."""

    def __init__(self, target: Target, attempts_max: int = ATTEMPTS_MAX) -> None:
        """:param attempts_max: How often a request is made while the service is overloaded."""
        self.target = target
        self._attempts_max = attempts_max
        self._connect()

    def close(self) -> None:
        self._http.close()

    def _connect(self) -> None:
        self._process_id = os.getpid()
        self._http = httpx.Client(headers=self.target.headers(), timeout=self.target.timeout_s, follow_redirects=False)

    def call(
        self,
        method: str,
        path: str,
        into: type[T] | None,
        *,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        text: str | None = None,
        headers: Mapping[str, str] | None = None,
        attempts_max: int | None = None,
        timeout_s: float | None = None,
    ) -> T:
        """Makes one request and returns its result. `text` is a body that is JSON already."""
        url = self.target.url_of(path, query)
        content = text if text is not None else None if body is None else json_text(body)
        within_s = self.target.timeout_s if timeout_s is None else timeout_s
        attempt = 1
        while True:
            try:
                return self._once(method, url, into, content, headers, within_s)
            except ConvokeError as error:
                wait_s = overloaded_wait_s(error, attempt, attempts_max or self._attempts_max)
                if wait_s is None:
                    raise
            time.sleep(wait_s)
            attempt += 1

    def _once(
        self,
        method: str,
        url: str,
        into: type[T] | None,
        content: str | None,
        headers: Mapping[str, str] | None,
        timeout_s: float,
    ) -> T:
        over_at_s = time.monotonic() + timeout_s
        with self.open(method, url, content, headers, timeout_s) as response:
            chunks: list[bytes] = []
            for chunk in response.iter_bytes():
                chunks.append(chunk)
                # httpx limits each step by itself, but not the whole time. Nothing can look at the clock between two
                # lines of the headers, because httpx reads all of them in one call.
                if time.monotonic() > over_at_s:
                    raise self.target.timeout(url, timeout_s)
        return read(response, b"".join(chunks).decode(errors="replace"), url, into)

    @contextmanager
    def open(
        self,
        method: str,
        url: str,
        content: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Generator[httpx.Response, None, None]:
        """A response whose body was not read yet. `timeout_s` is for each step: to connect, to send, to wait for bytes."""
        within_s = self.target.timeout_s if timeout_s is None else timeout_s
        if self._process_id != os.getpid():
            # A fork shares the connections of its parent: each of the two would read responses to the other.
            self._connect()
        try:
            with self._http.stream(
                method,
                url,
                content=None if content is None else content.encode(),
                headers=_with_type(headers, content),
                timeout=within_s,
            ) as response:
                yield response
        except httpx.TimeoutException as error:
            raise self.target.timeout(url, within_s) from error
        except (httpx.HTTPError, OSError) as error:
            raise error_from_failure(error, url) from error


class AsyncRequests:
    """Requests that are awaited, in an event loop of asyncio."""

    def __init__(self, target: Target, attempts_max: int = ATTEMPTS_MAX) -> None:
        """:param attempts_max: How often a request is made while the service is overloaded."""
        self.target = target
        self._attempts_max = attempts_max
        self._http = httpx.AsyncClient(headers=target.headers(), timeout=target.timeout_s, follow_redirects=False)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def call(
        self,
        method: str,
        path: str,
        into: type[T] | None,
        *,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        text: str | None = None,
        headers: Mapping[str, str] | None = None,
        attempts_max: int | None = None,
        timeout_s: float | None = None,
    ) -> T:
        """Makes one request and returns its result. `text` is a body that is JSON already."""
        url = self.target.url_of(path, query)
        content = text if text is not None else None if body is None else json_text(body)
        within_s = self.target.timeout_s if timeout_s is None else timeout_s
        attempt = 1
        while True:
            try:
                response = await self.ask(method, url, content, headers, within_s)
                return read(response, response.content.decode(errors="replace"), url, into)
            except ConvokeError as error:
                wait_s = overloaded_wait_s(error, attempt, attempts_max or self._attempts_max)
                if wait_s is None:
                    raise
            await asyncio.sleep(wait_s)
            attempt += 1

    async def ask(
        self,
        method: str,
        url: str,
        content: str | None,
        headers: Mapping[str, str] | None,
        timeout_s: float,
        on_head: Callable[[], None] | None = None,
    ) -> httpx.Response:
        """Reads a whole response within the deadline.

        :param on_head: Called when the head of the response has arrived.
        """

        async def whole() -> httpx.Response:
            async with self.open(method, url, content, headers, timeout_s) as response:
                if on_head is not None:
                    on_head()
                await response.aread()
                return response

        try:
            return await asyncio.wait_for(whole(), timeout_s)
        except asyncio.TimeoutError as error:
            raise self.target.timeout(url, timeout_s) from error

    @asynccontextmanager
    async def open(
        self,
        method: str,
        url: str,
        content: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> AsyncGenerator[httpx.Response, None]:
        """A response whose body was not read yet. `timeout_s` is for each step: to connect, to send, to wait for bytes."""
        within_s = self.target.timeout_s if timeout_s is None else timeout_s
        try:
            async with self._http.stream(
                method,
                url,
                content=None if content is None else content.encode(),
                headers=_with_type(headers, content),
                timeout=within_s,
            ) as response:
                yield response
        except httpx.TimeoutException as error:
            raise self.target.timeout(url, within_s) from error
        except (httpx.HTTPError, OSError) as error:
            raise error_from_failure(error, url) from error


def _with_type(headers: Mapping[str, str] | None, content: str | None) -> dict[str, str]:
    given = headers or {}
    for name, value in given.items():
        _check_header(name, value)
    return {**given, **({} if content is None else {"content-type": "application/json"})}


def _check_header(name: str, value: str) -> None:
    """Refuses a value that cannot be in a header.

    httpx would report such a value as a failure of the connection, and show the value, which may be a credential.

    :raises ValueError: the value cannot be in a header
    """
    if not re.fullmatch(r"([!-~]([\t -~]*[!-~])?)?", value):
        raise ValueError(f"{name} must be printable ASCII, with no space or line break at its ends")
