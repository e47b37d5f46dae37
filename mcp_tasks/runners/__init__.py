"""Who starts legs. The table is the queue; a runner only hears a doorbell."""
