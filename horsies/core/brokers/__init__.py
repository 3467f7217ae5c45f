"""What a program does with its database, below the app."""
