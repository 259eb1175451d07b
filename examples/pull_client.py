"""An agent that pulls, with the standard library only. What it does and why: docs/pull.md

    python3 examples/pull_client.py anna standup-42

CONVOKE_URL and CONVOKE_API_KEY say where the service is, and who this is. With WEBHOOK_SECRET (whsec_ and the base64 of
32 random bytes) it verifies each push. Give the same secret at every start, and to every copy of this program.
"""
import base64, contextlib, hashlib, hmac, http.client, json, os, random, secrets, signal, sys, time
import urllib.parse, urllib.request

URL = os.environ.get("CONVOKE_URL", "http://127.0.0.1:8080").rstrip("/")
API_KEY = os.environ.get("CONVOKE_API_KEY", "")
SECRET = os.environ.get("WEBHOOK_SECRET")
WAIT_S, DONE_MAX = 30, 10_000


class Failed(Exception):
    """Convoke does not respond, or has no time now: try again, after the seconds of the second argument at least."""


class Missing(Exception):
    """Convoke does not have this instance: somebody deleted it, or restored a backup without it."""


class AsItIs(urllib.request.HTTPErrorProcessor):
    def http_response(self, _, response):
        return response  # urllib would follow a redirect, and so take the key to another host.

    https_response = http_response


opener = urllib.request.build_opener(AsItIs)


def call(path, body, timeout_s=10):
    headers = {"content-type": "application/json", "user-agent": "pull_client.py"}
    headers |= {"authorization": f"Bearer {API_KEY}"} if API_KEY else {}
    request = urllib.request.Request(f"{URL}/api/v1/instances/{path}", json.dumps(body).encode(), headers)
    try:
        with opener.open(request, timeout=timeout_s) as response:
            status, after, text = response.status, response.headers.get("retry-after") or "", response.read().decode()
            answer = json.loads(text)
    except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: a proxy responds, while Convoke is away.
        raise Failed(error, 0) from error
    if status >= 500 or status in (408, 429):
        raise Failed(f"Convoke responded with {status}", min(int(after), 60) if after.isdecimal() else 0)
    if status >= 300:
        raise (Missing if "instance_does_not_exist" in text else SystemExit)(f"refused: {status} {text}")
    return answer


def insist(path, body, timeout_s=10):
    """Repeats a request until Convoke accepts it. Pauses double from 0.1 s to 0.5 s, and after a minute to 5 s."""
    pause_s, began_at = 0.1, time.monotonic()
    while True:
        try:
            return call(path, body, timeout_s)
        except Failed as failure:
            print(f"{failure.args[0]}; trying again", file=sys.stderr, flush=True)
            time.sleep(max(failure.args[1], pause_s * random.uniform(0.5, 1)))
            pause_s = min(2 * pause_s, 0.5 if time.monotonic() - began_at < 60 else 5)


def is_genuine(secret, headers, body):
    timestamp, given = headers.get("webhook-timestamp", ""), headers.get("webhook-signature", "").split(" ")
    if not timestamp.isdecimal() or abs(time.time() - int(timestamp)) > 300:
        return False
    signed = f"{headers.get('webhook-id', '')}.{timestamp}.".encode() + body
    digest = hmac.digest(base64.b64decode(secret.removeprefix("whsec_")), signed, hashlib.sha256)
    return any(hmac.compare_digest(one.encode(), b"v1," + base64.b64encode(digest)) for one in given)


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
            del done[next(iter(done))]
    return about | done[delivery_id]


def serve(agent_id, meeting_ids, agent, secret=SECRET):
    about = {"instance_id": agent_id, "agent_ids": [agent_id]}
    # Without a secret the service keeps the one that it has.
    registration = about | {"instance_name": agent_id, "transport": "pull", "replies": True}
    registration |= {} if secret is None else {"webhook_secret": secret}
    path = f"{urllib.parse.quote(agent_id, safe='')}/pull/"
    done, results, pull, missing_at, is_working, is_ending = {}, [], {}, None, False, False

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
    with contextlib.suppress(KeyboardInterrupt):
        enter()
        while not is_ending:
            # One push at a time: the service hands out the next one when this one has its result, so no deadline runs
            # meanwhile. The request has a name: when its response is lost, the same request gets the same push again.
            pull = {"results": results, "max": 1, "wait_s": WAIT_S, "pull_id": secrets.token_hex(16)}
            try:
                pushes = insist(path, pull, WAIT_S + 15)["pushes"]
            except Missing as missing:
                if missing_at is not None and time.monotonic() - missing_at < 60:
                    sys.exit(f"somebody removes this instance on purpose: {missing}")
                missing_at = time.monotonic()
                enter()
                continue
            is_working = True
            results = [result_of(push, secret, done, agent) for push in pushes]
            is_working = False
    # Under its name, the last request gives back the push that has no result: another copy gets it at once.
    with contextlib.suppress(Failed, Missing):
        call(path, pull | {"results": results, "max": 0})


def echo(push, headers):
    """The agent: put yours here. It sends nothing to other agents, so that no two of them talk for ever."""
    print(f"{push['meeting_id']} #{headers['convoke-seq']}: {json.dumps(push['message'])}", flush=True)
    return None if "convoke-from-agent" in headers else f"You said: {push['message'].get('content')}"


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2:], echo)
