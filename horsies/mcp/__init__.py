"""A Model Context Protocol server for coding agents (X-41), as `horsies mcp` runs it: `program.py` begins and ends it,
`stdio.py` is the line to the agent, `protocol.py` speaks the protocol, and `reading.py` and `acting.py` are the tools.
"""
