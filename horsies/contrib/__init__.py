"""Where horsies meets other frameworks. Each is a module of its own, which nothing imports but who uses it."""
