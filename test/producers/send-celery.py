import os

from celery import Celery

app = Celery("shop", broker=os.environ["AMQP_URL"])


@app.task
def reserve(order):
    pass


reserve.apply_async([{"id": 7, "name": "Zoë", "price": 1.5}], exchange=os.environ["EXCHANGE"], routing_key=os.environ["KEY"])
