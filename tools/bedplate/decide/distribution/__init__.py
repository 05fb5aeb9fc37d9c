"""What is to be known before a file is moved to many nodes: by which way, between whom, and what may go afterwards."""
