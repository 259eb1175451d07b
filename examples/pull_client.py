"""An agent that pulls, with the standard library only. What it does and why: docs/pull.md

    python3 examples/pull_client.py anna standup-42

CONVOKE_URL and CONVOKE_API_KEY say where the service is, and who this is. With WEBHOOK_SECRET (whsec_ and the base64 of
32 random bytes) it verifies each push. Give the same secret at every start, and to every copy of this program.
"""
import base64
import collections
import contextlib
import hashlib
import hmac
import http.client
import json
import os
import random
import secrets
import signal
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

URL = os.environ.get("CONVOKE_URL", "http://127.0.0.1:8080").rstrip("/")
API_KEY = os.environ.get("CONVOKE_API_KEY", "")
SECRET = os.environ.get("WEBHOOK_SECRET")
WAIT_S = 30
DONE_MAX = 10_000
REFUSALS_MAX = 3
LEFT_OUT = "the text of this result was left out: something between this machine and Convoke refuses it"


class Failed(Exception):
    """Try again. Has a reason, `retry-after`, and whether nothing responds, or a firewall refuses the request."""


class Missing(SystemExit):
    """The service does not have this instance: somebody deleted it, or restored a backup without it."""


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None  # It would take the key to another host.


opener = urllib.request.build_opener(NoRedirect)


def call(path, body, timeout_s=10):
    headers = {"content-type": "application/json", "user-agent": "pull_client.py"}
    if API_KEY:
        headers["authorization"] = f"Bearer {API_KEY}"
    request = urllib.request.Request(f"{URL}/api/v1/instances/{path}", json.dumps(body).encode(), headers)
    try:
        with opener.open(request, timeout=timeout_s) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        status, retry_after, problem = error.code, error.headers.get("retry-after"), ""
        with contextlib.suppress(OSError, http.client.HTTPException):
            problem = error.read().decode(errors="replace")
    except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: a page is no JSON.
        is_page = isinstance(error, ValueError)
        raise Failed(str(error), None, not isinstance(error, TimeoutError), is_page) from error
    is_final = status < 500 and status not in (408, 429)
    if not problem.startswith("{"):  # Not from Convoke, but from a proxy, while the service is away.
        raise Failed(f"answered {status}", None, status == 502, is_final)
    if is_final:
        raise (Missing if "instance_does_not_exist" in problem else SystemExit)(f"refused: {status} {problem}")
    raise Failed(f"answered {status}", retry_after, False, False)


def insist(path, body, timeout_s=10):
    """Repeats a request until it is answered. Pauses double from 0.1 s to 5 s, with a random part. While nothing is there
    that could respond they stay at 0.5 s for a minute: asking costs nothing then, and a restart takes seconds."""
    pause_s, lost_at, refusals = 0.1, None, 0
    while True:
        try:
            return call(path, body, timeout_s)
        except Failed as failure:
            why, retry_after, is_away, is_refused = failure.args
        print(f"{why}; trying again", file=sys.stderr, flush=True)
        lost_at = lost_at or time.monotonic()
        pause_s = min(pause_s, 0.5 if is_away and time.monotonic() - lost_at < 60 else 5)
        asked_s = min(int(retry_after), 60) if (retry_after or "").isdecimal() else 0
        time.sleep(max(asked_s, pause_s * random.uniform(0.5, 1)))
        pause_s *= 2
        # A firewall may refuse the text of an answer, and with it every further request.
        if is_refused and body.get("results") and responds(path):
            refusals += 1
            if refusals == REFUSALS_MAX:
                print(LEFT_OUT, file=sys.stderr, flush=True)
                body["results"][:] = [result | {"body": LEFT_OUT} for result in body["results"]]


def responds(path):
    """Whether a request without results reaches Convoke."""
    with contextlib.suppress(Failed):
        return call(path, {"max": 0}) is not None
    return False


def is_genuine(secret, headers, body):
    timestamp = headers.get("webhook-timestamp", "")
    if not timestamp.isdecimal() or abs(time.time() - int(timestamp)) > 300:
        return False
    signed = f"{headers.get('webhook-id', '')}.{timestamp}.".encode() + body
    key = base64.b64decode(secret.removeprefix("whsec_"))
    expected = b"v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256))
    given = headers.get("webhook-signature", "").split(" ")
    return any(hmac.compare_digest(one.encode(), expected) for one in given)


def result_of(push, secret, done, agent):
    """What the service learns of a push: a status, and a reply in the body."""
    headers, body, delivery_id = push["headers"], push["body"].encode(), push["delivery_id"]
    about = {"delivery_id": delivery_id, "attempt": push["attempt"]}
    if secret is not None and not is_genuine(secret, headers, body):
        return about | {"status_code": 401}
    if delivery_id not in done:  # Otherwise the result was lost on the way, and the agent has already run.
        try:
            reply = agent(json.loads(body), headers)
        except Exception as error:  # The push repeats later.
            print(f"the agent failed: {error!r}", file=sys.stderr, flush=True)
            return about | {"status_code": 500}
        done[delivery_id] = {"status_code": 200, "body": json.dumps({} if reply is None else {"reply": reply})}
        if len(done) > DONE_MAX:
            done.popitem(last=False)
    return about | done[delivery_id]


def serve(agent_id, meeting_ids, agent, secret=SECRET):
    about = {"instance_id": agent_id, "agent_ids": [agent_id]}
    # Without a secret the service keeps the one that it has. With a new one at each start, another copy of this program
    # would refuse every push.
    registration = about | {"instance_name": agent_id, "transport": "pull", "replies": True}
    registration |= {} if secret is None else {"webhook_secret": secret}
    path = f"{urllib.parse.quote(agent_id, safe='')}/pull/"
    done, results, pull, missing_at = collections.OrderedDict(), [], {}, float("-inf")
    is_working = is_ending = False

    def end(*_):
        """A signal ends a wait at once, and lets the agent finish; a second one does not let it."""
        nonlocal is_ending
        if is_ending or not is_working:
            raise KeyboardInterrupt
        is_ending = True

    def enter():
        insist("register/", registration)
        for meeting_id in meeting_ids:
            insist("join-meeting/", about | {"meeting_id": meeting_id})
        print(f"{agent_id} pulls", flush=True)

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, end)
    try:
        enter()
        while not is_ending:
            # One push at a time: the service hands out the next one when this one has its result, so no deadline runs
            # meanwhile. The request has a name: when its response is lost, the same request gets the same push again.
            pull = {"results": results, "max": 1, "wait_s": WAIT_S, "pull_id": secrets.token_hex(16)}
            try:
                pushes = insist(path, pull, WAIT_S + 15)["pushes"]
            except Missing:
                if time.monotonic() - missing_at < 60:  # Twice within a minute: somebody removes it on purpose.
                    raise
                missing_at = time.monotonic()
                enter()
            else:
                is_working = True
                results = [result_of(push, secret, done, agent) for push in pushes]
                is_working = False
    except KeyboardInterrupt:
        pass
    # Under its name, the last request gives back the push that has no result: another copy gets it at once.
    with contextlib.suppress(Failed, Missing):
        call(path, pull | {"results": results, "max": 0})


def echo(push, headers):
    """The agent: put yours here. It sends nothing to other agents, so that no two of them talk for ever."""
    print(f"{push['meeting_id']} #{headers['convoke-seq']}: {json.dumps(push['message'])}", flush=True)
    return None if "convoke-from-agent" in headers else f"You said: {push['message'].get('content')}"


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2:], echo)
