"""The parts that drills, benches and tests share: a service to start, an HTTP and an SMTP client, scripted servers."""
