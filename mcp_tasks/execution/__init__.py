"""One leg of a task, whatever started it: call the handler, keep the lease, settle what came out."""
