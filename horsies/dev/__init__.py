"""The dev loop: a worker that is replaced when a file changes (X-30), everything that a project needs in one tree of
processes (X-31), and new projects (X-32). `cli/` has the commands."""
