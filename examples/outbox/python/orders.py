#!/usr/bin/env python3
"""Orders and their messages, written in one transaction. The sidecar sends the messages of what was committed.

    usage: DATABASE_URL=postgres://… orders.py [TRACKING-IDS]

Needs psycopg 3: apt-get install python3-psycopg, or pip install psycopg. TRACKING-IDS is a JSON list.
"""

import json
import os
import sys

import psycopg
from psycopg.types.json import Jsonb

INSERT = """INSERT INTO outbox (routing_key, body, properties, ordering_key, tracking_ids)
            VALUES (%s, %s, '{"content_type": "application/json"}', %s, %s) RETURNING message_id"""


def emit(conn, routing_key, body, ordering_key=None, tracking_ids=None):
    """Adds a message to the transaction that conn is in, and returns its id. It is sent when that transaction commits.

    ordering_key: messages of one key are sent one after the other, in the order of their inserts.
    tracking_ids: the list in the header Amqp-Header-x-outbox-tracking-ids of the request that is being answered, if any.
    """
    chain = None if tracking_ids is None else Jsonb(tracking_ids)
    return conn.execute(INSERT, (routing_key, json.dumps(body).encode(), ordering_key, chain)).fetchone()[0]


class Refused(Exception):
    """The order cannot be taken."""


def place_order(conn, customer, cents, tracking_ids=None):
    with conn.transaction():
        order = conn.execute("INSERT INTO orders (customer, cents) VALUES (%s, %s) RETURNING id", (customer, cents)).fetchone()[0]
        message = emit(conn, "order.placed", {"order": order, "customer": customer, "cents": cents}, customer, tracking_ids)
        if cents > 1_000_000:
            raise Refused(f"order {order}: message {message} ({cents} cents are too much)")
    return f"order {order}: message {message}"


def place_orders(conn, orders):
    """Several orders, all or none: the transactions in the transaction are savepoints."""
    with conn.transaction():
        return [place_order(conn, customer, cents) for customer, cents in orders]


def main():
    tracking_ids = json.loads(sys.argv[1]) if len(sys.argv) > 1 else None
    # With autocommit a transaction is what stands in a transaction() block, and nothing else is.
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as conn:
        print("committed  ", place_order(conn, "ada", 4200, tracking_ids))
        try:
            place_order(conn, "bob", 9_999_999)
        except Refused as refused:
            print("rolled back", refused)
        for placed in place_orders(conn, [("cleo", 100), ("dan", 200), ("eve", 300)]):
            print("committed  ", placed)


if __name__ == "__main__":
    main()
