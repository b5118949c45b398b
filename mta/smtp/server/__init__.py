"""The server side of SMTP, shared by submission, the simulator, the local sink and a future MX.

`buffer` and `commands` are pure: lines, content and commands in, values out. `reader` adds waiting and memory limits,
`listener` accepts sockets within limits, `aiosmtpd_session` runs a session on top of aiosmtpd.
"""
