"""The detached process that keeps an embedded server. It uses only relative imports and the standard library: it runs
without the rest of horsies, so that it starts in milliseconds and needs nothing from the user's Python path (see
`server.py`).
"""
