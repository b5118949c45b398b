package main

import (
	"log"
	"net/smtp"
	"os"
)

func main() {
	host, port, from, to := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	message := "From: " + from + "\r\nTo: " + to + "\r\nSubject: Hello\r\n\r\nIt works.\r\n"
	if err := smtp.SendMail(host+":"+port, nil, from, []string{to}, []byte(message)); err != nil {
		log.Fatal(err)
	}
}
