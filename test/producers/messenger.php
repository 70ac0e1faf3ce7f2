<?php
// usage: messenger.php php|json      the default serializer, and the one of symfony/serializer
require_once '/usr/share/php/Symfony/Component/Messenger/autoload.php';
require_once '/usr/share/php/Symfony/Component/Messenger/Bridge/Amqp/autoload.php';
require_once '/usr/share/php/Symfony/Component/Serializer/autoload.php';
require_once '/usr/share/php/Symfony/Component/PropertyAccess/autoload.php';

use Symfony\Component\Messenger\Bridge\Amqp\Transport\AmqpStamp;
use Symfony\Component\Messenger\Bridge\Amqp\Transport\AmqpTransportFactory;
use Symfony\Component\Messenger\Envelope;
use Symfony\Component\Messenger\Transport\Serialization\PhpSerializer;
use Symfony\Component\Messenger\Transport\Serialization\Serializer;

final class Order
{
    public $id = 7;
    public $name = 'Zoë';
    public $price = 1.5;
}

$serializer = $argv[1] === 'json' ? Serializer::create() : new PhpSerializer();
$options = ['exchange' => ['name' => getenv('EXCHANGE'), 'type' => 'topic'], 'queues' => [], 'auto_setup' => false];
$transport = (new AmqpTransportFactory())->createTransport(getenv('AMQP_URL'), $options, $serializer);
$transport->send(new Envelope(new Order(), [new AmqpStamp(getenv('KEY'))]));
