<?php
require_once '/usr/share/php/PhpAmqpLib/autoload.php';

use PhpAmqpLib\Connection\AMQPStreamConnection;
use PhpAmqpLib\Message\AMQPMessage;

$url = parse_url(getenv('AMQP_URL'));
$connection = new AMQPStreamConnection($url['host'], $url['port'], $url['user'], $url['pass']);
$channel = $connection->channel();
$message = new AMQPMessage(json_encode(['id' => 7, 'name' => 'Zoë', 'price' => 1.5]));
$channel->basic_publish($message, getenv('EXCHANGE'), getenv('KEY'));
$channel->close();
$connection->close();
