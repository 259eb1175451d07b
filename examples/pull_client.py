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
    """Try again: the service is not there, overloaded, or restarts."""


class Missing(SystemExit):
    """The service does not have this instance: somebody deleted it, or restored a backup without it."""


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would take the key to another host."""

    def redirect_request(self, *_):
        return None


opener = urllib.request.build_opener(NoRedirect)


def text_of(error):
    try:
        return error.read().decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return ""


def call(path, body, timeout_s=10):
    headers = {"content-type": "application/json", "user-agent": "pull_client.py"}
    if API_KEY:
        headers["authorization"] = f"Bearer {API_KEY}"
    request = urllib.request.Request(f"{URL}/api/v1/instances/{path}", json.dumps(body).encode(), headers)
    try:
        with opener.open(request, timeout=timeout_s) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        problem = text_of(error)
        # Anything else than JSON is not from Convoke, but from a proxy while the service is away.
        is_convoke = problem.startswith("{")
        if 400 <= error.code < 500 and error.code not in (408, 429):
            refusal = f"refused: {error.code} {problem}"
            if "instance_does_not_exist" in problem:
                raise Missing(refusal)
            if is_convoke:
                sys.exit(refusal)
        retry_after = error.headers.get("retry-after") if is_convoke else None
        is_refusal = error.code < 500 and error.code not in (408, 429)
        raise Failed(f"answered {error.code}", retry_after, error.code == 502, is_refusal) from error
    except TimeoutError as error:
        raise Failed(str(error), None, False, False) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        # A page with 200 is no JSON.
        raise Failed(str(error), None, True, isinstance(error, ValueError)) from error


def insist(path, body, timeout_s=10):
    """Repeats a request until it is answered. Pauses double from 0.1 s to 5 s, with a random part. While nothing is there
    that could respond they stay at 0.5 s for a minute: asking costs nothing then, and a restart takes seconds."""
    pause_s = 0.1
    lost_at = None
    refusals = 0
    while True:
        try:
            return call(path, body, timeout_s)
        except Failed as failure:
            why, retry_after, is_away, is_refusal = failure.args
            asked_s = min(int(retry_after), 60) if (retry_after or "").isdecimal() else 0
            print(f"{why}; trying again", file=sys.stderr, flush=True)
            lost_at = lost_at or time.monotonic()
            is_soon = is_away and time.monotonic() - lost_at < 60
            pause_s = min(pause_s, 0.5 if is_soon else 5)
            time.sleep(max(asked_s, pause_s * random.uniform(0.5, 1)))
            pause_s *= 2
            # A firewall may refuse the text of an answer, and with it every further request.
            if is_refusal and body.get("results") and responds(path):
                refusals += 1
                if refusals == REFUSALS_MAX:
                    for result in body["results"]:
                        result["body"] = LEFT_OUT
                    print(LEFT_OUT, file=sys.stderr, flush=True)


def responds(path):
    """Whether a request without results reaches Convoke."""
    try:
        call(path, {"max": 0})
    except Failed:
        return False
    return True


def is_genuine(secret, headers, body):
    key = base64.b64decode(secret.removeprefix("whsec_"))
    timestamp = headers.get("webhook-timestamp", "")
    if not timestamp.isdecimal() or abs(time.time() - int(timestamp)) > 300:
        return False
    signed = f"{headers.get('webhook-id', '')}.{timestamp}.".encode() + body
    expected = "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    given = headers.get("webhook-signature", "").split(" ")
    return any(hmac.compare_digest(one.encode(), expected.encode()) for one in given)


def result_of(push, secret, done, agent):
    """What the service learns of a push: a status, and a reply in the body."""
    headers, body = push["headers"], push["body"].encode()
    about = {"delivery_id": push["delivery_id"], "attempt": push["attempt"]}
    if secret is not None and not is_genuine(secret, headers, body):
        return about | {"status_code": 401}
    # Otherwise the result was lost on the way, and the agent has already run.
    if push["delivery_id"] not in done:
        try:
            reply = agent(json.loads(body), headers)
        except Exception as error:  # The push repeats later.
            print(f"the agent failed: {error!r}", file=sys.stderr, flush=True)
            return about | {"status_code": 500}
        done[push["delivery_id"]] = {"status_code": 200, "body": json.dumps({} if reply is None else {"reply": reply})}
        if len(done) > DONE_MAX:
            done.popitem(last=False)
    return about | done[push["delivery_id"]]


def serve(agent_id, meeting_ids, agent, secret=SECRET):
    about = {"instance_id": agent_id, "instance_name": agent_id, "agent_ids": [agent_id]}
    # Without a secret the service keeps the one that it has. A new one at each start would
    # make another copy of this program refuse every push.
    known = {} if secret is None else {"webhook_secret": secret}

    def enter():
        insist("register/", about | known | {"transport": "pull", "replies": True})
        for meeting_id in meeting_ids:
            insist("join-meeting/", {"instance_id": agent_id, "meeting_id": meeting_id, "agent_ids": [agent_id]})
        print(f"{agent_id} pulls", flush=True)

    enter()
    instance = urllib.parse.quote(agent_id, safe="")
    done, results, missing_at = collections.OrderedDict(), [], float("-inf")
    try:
        while True:
            # One push at a time: the service hands out the next one when this one has
            # its result, so no deadline runs meanwhile. The request has a name of its
            # own: when its response is lost, the same request gets the same push again.
            pull = {"results": results, "max": 1, "wait_s": WAIT_S, "pull_id": secrets.token_hex(16)}
            try:
                pushes = insist(f"{instance}/pull/", pull, WAIT_S + 15)["pushes"]
            except Missing:
                # The second time within a minute, somebody removes it on purpose.
                if time.monotonic() - missing_at < 60:
                    raise
                missing_at = time.monotonic()
                enter()
            else:
                results = [result_of(push, secret, done, agent) for push in pushes]
    except KeyboardInterrupt:
        with contextlib.suppress(Failed):
            call(f"{instance}/pull/", {"results": results, "max": 0})


def echo(push, headers):
    """The agent: put yours here. It sends nothing to other agents, so that no two of
    them talk for ever."""
    print(f"{push['meeting_id']} #{headers['convoke-seq']}: {json.dumps(push['message'])}", flush=True)
    return None if "convoke-from-agent" in headers else f"You said: {push['message'].get('content')}"


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    serve(sys.argv[1], sys.argv[2:], echo)
