"""A web application that sends tasks from its endpoints, each in the transaction of its request."""
