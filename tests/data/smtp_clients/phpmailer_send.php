<?php
require '/usr/share/php/libphp-phpmailer/autoload.php';

[, $host, $port, $from, $to] = $argv;
$mail = new PHPMailer\PHPMailer\PHPMailer(true);
$mail->isSMTP();
$mail->Host = $host;
$mail->Port = (int) $port;
$mail->setFrom($from);
$mail->addAddress($to);
$mail->Subject = 'Hello';
$mail->Body = 'It works.';
$mail->send();
