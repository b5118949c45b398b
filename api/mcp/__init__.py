"""The MCP server: tools for agents, which call the operations of the public API with the agent's key.

`waybill mcp` (ops.commands.mcp_server) serves the tools on standard input and output, `endpoint` at `/mcp`. Only
`server` and `http_server` import the SDK, which the extra `mcp` installs.
"""
