<?php
$url = parse_url(getenv('AMQP_URL'));
$connection = new AMQPConnection(['host' => $url['host'], 'port' => $url['port'], 'login' => $url['user'], 'password' => $url['pass']]);
$connection->connect();
$exchange = new AMQPExchange(new AMQPChannel($connection));
$exchange->setName(getenv('EXCHANGE'));
$exchange->publish(json_encode(['id' => 7, 'name' => 'Zoë', 'price' => 1.5]), getenv('KEY'));
$connection->disconnect();
