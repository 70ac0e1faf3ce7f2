import asyncio
import json
import os

import aio_pika


async def main():
    connection = await aio_pika.connect(os.environ["AMQP_URL"])
    async with connection:
        channel = await connection.channel()
        exchange = await channel.get_exchange(os.environ["EXCHANGE"])
        order = {"id": 7, "name": "Zoë", "price": 1.5}
        await exchange.publish(aio_pika.Message(json.dumps(order).encode()), os.environ["KEY"])


asyncio.run(main())
