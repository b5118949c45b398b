require "mail"

host, port, sender, recipient = ARGV
Mail.defaults { delivery_method :smtp, address: host, port: Integer(port) }
Mail.deliver do
  from sender
  to recipient
  subject "Hello"
  body "It works."
end
