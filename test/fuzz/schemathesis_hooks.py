"""What no schema can say of a valid request, so that what is made from the schemas is valid.

Only values that their schema allows are replaced: those made to be refused stay as they are.
"""

import re

import schemathesis

# A cursor is what a page was answered with; what looks like one and is none is refused, as it must be.
CURSOR = re.compile(r"[A-Za-z0-9_-]+\Z")
# Which URLs are allowed is decided by the egress policy and the URL parser.
WEBHOOK_URL = "http://127.0.0.1:9/"
# Base64 has lengths that do not exist, and names of headers some that are taken.
WEBHOOK_SECRET = re.compile(r"whsec_[A-Za-z0-9+/]{32,88}={0,2}\Z")
WEBHOOK_SECRET_EXAMPLE = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"


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
    url, secret = body.get("webhook_url"), body.get("webhook_secret")
    replaced = {}
    if isinstance(url, str) and 1 <= len(url) <= 2048:
        replaced["webhook_url"] = WEBHOOK_URL
    if isinstance(secret, str) and WEBHOOK_SECRET.match(secret):
        replaced["webhook_secret"] = WEBHOOK_SECRET_EXAMPLE
    return {**body, **replaced}
