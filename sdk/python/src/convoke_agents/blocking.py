"""Async iterators for programs that block: an event loop in a thread of its own runs them."""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, TypeVar
from weakref import WeakSet

from convoke_agents.pull import AsyncPulling, PushInHand

T = TypeVar("T")
_END: Final = object()
_open: WeakSet[Generator[Any, None, None]] = WeakSet()


@atexit.register
def _close_open() -> None:
    """Closes the iterators that are still open when the program ends.

    Later Python runs no daemon thread, and an iterator that is closed then would wait for its thread for ever.
    """
    for each in list(_open):
        # ValueError: a thread of the program waits for an item of this iterator, so nobody can close it.
        with suppress(ValueError):
            each.close()


class _LoopThread:
    """An event loop in a thread, until the `with` block ends."""

    def __enter__(self) -> _LoopThread:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="convoke", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A response that was left half-read still has generators to close.
        self.run(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of the work. When this thread is interrupted, it cancels the work and waits for its end."""
        started: Future[asyncio.Task[T]] = Future()
        done: Future[T] = Future()

        def settle(task: asyncio.Task[T]) -> None:
            if task.cancelled():
                done.set_exception(asyncio.CancelledError())
            elif (error := task.exception()) is not None:
                done.set_exception(error)
            else:
                done.set_result(task.result())

        def start() -> None:
            task = self._loop.create_task(work)
            task.add_done_callback(settle)
            started.set_result(task)

        self._loop.call_soon_threadsafe(start)
        try:
            return done.result()
        except BaseException:
            if not done.done():
                self._loop.call_soon_threadsafe(started.result().cancel)
                done.exception()
            raise


def blocking(make: Callable[[], AsyncGenerator[T, None]]) -> Generator[T, None, None]:
    """The items of an async generator, one by one as the caller takes them."""
    items = _items(make)
    _open.add(items)
    return items


def _items(make: Callable[[], AsyncGenerator[T, None]]) -> Generator[T, None, None]:
    with _LoopThread() as thread:

        async def begin() -> AsyncGenerator[T, None]:
            return make()

        items = thread.run(begin())

        async def following() -> T | object:
            return await anext(items, _END)

        try:
            while True:
                item = thread.run(following())
                if item is _END:
                    return
                yield item  # type: ignore[misc]
        finally:
            thread.run(_closed(items))


async def _closed(items: AsyncGenerator[Any, None]) -> None:
    await items.aclose()


class Pulling(Iterator[PushInHand]):
    """The pushes of one instance, as they arrive: `for push in client.pull(…)`. Results may be given from any thread."""

    def __init__(self, make: Callable[[], AsyncPulling]) -> None:
        self._pulling = make()
        self._pushes = blocking(self._pulling.__aiter__)

    def stop(self) -> None:
        """Takes no more pushes. Any thread may call it.

        The iteration ends as soon as the pushes in your hands have their results and these are handed in.
        """
        self._pulling.stop()

    def close(self) -> None:
        """Ends the iteration, as leaving the loop does. Hands in the results that were given so far."""
        self._pushes.close()

    def __next__(self) -> PushInHand:
        return next(self._pushes)

    def __enter__(self) -> Pulling:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
