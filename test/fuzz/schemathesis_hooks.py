"""Makes requests valid where no schema can say what is valid.

Only values that their schema allows are replaced. Values that are made to be refused stay as they are.
"""

import re

import schemathesis

# Only the response to a page has a valid cursor. The service must refuse any other text in the form of a cursor.
CURSOR = re.compile(r"[A-Za-z0-9_-]+\Z")
# The egress policy and the URL parser decide which URLs are allowed.
WEBHOOK_URL = "http://127.0.0.1:9/"
RUNTIMES = ("spec", "openai", "openclaw", "hermes", "mcp_events", "template", "a2a", "langgraph", "dify", "mcp_events")
# Not every length is valid base64, and some header names are reserved.
WEBHOOK_SECRET = re.compile(r"whsec_[A-Za-z0-9+/]{32,88}={0,2}\Z")
WEBHOOK_SECRET_EXAMPLE = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
SCOPES = ["admin", "send", "read", "instance"]
KEY_ID = re.compile(r"[0-9a-v]{12}\Z")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)\Z")


@schemathesis.hook
def map_query(context, query):
    cursor = (query or {}).get("cursor")
    if isinstance(cursor, str) and CURSOR.match(cursor):
        return {name: value for name, value in query.items() if name != "cursor"}
    return query


@schemathesis.hook
def map_body(context, body):
    if not isinstance(body, dict):
        return body
    # Only a subscription has a lease.
    if isinstance(body.get("lease_s"), int):
        body = {name: value for name, value in body.items() if name != "lease_s"}
    url, secret = body.get("webhook_url"), body.get("webhook_secret")
    replaced = {}
    if isinstance(url, str) and 1 <= len(url) <= 2048:
        replaced["webhook_url"] = WEBHOOK_URL
    if isinstance(secret, str) and WEBHOOK_SECRET.match(secret):
        replaced["webhook_secret"] = WEBHOOK_SECRET_EXAMPLE
    # Each runtime has options of its own.
    if body.get("runtime") in RUNTIMES:
        replaced["runtime"] = "spec"
    if isinstance(body.get("runtime_options"), dict):
        replaced["runtime_options"] = {}
    # A limit needs a scope that the key has, an admin key has no limits, and a key expires in the future.
    if is_list_of(body.get("scopes"), SCOPES):
        replaced["scopes"] = ["send", "read", "instance"]
    if isinstance(body.get("expires_at"), str) and TIME.match(body["expires_at"]):
        replaced["expires_at"] = "2099-01-01T00:00:00Z"
    # A random id is the id of no key.
    if isinstance(body.get("owner_key_id"), str) and KEY_ID.match(body["owner_key_id"]):
        replaced["owner_key_id"] = None
    return {**body, **replaced}


def is_list_of(value, allowed):
    return isinstance(value, list) and 0 < len(value) <= len(allowed) and all(each in allowed for each in value)
