<?php
require '/usr/share/php/Symfony/Component/Mailer/autoload.php';

use Symfony\Component\Mailer\Mailer;
use Symfony\Component\Mailer\Transport;
use Symfony\Component\Mime\Email;

[, $host, $port, $from, $to] = $argv;
$mailer = new Mailer(Transport::fromDsn("smtp://$host:$port"));
$mailer->send((new Email())->from($from)->to($to)->subject('Hello')->text('It works.'));
