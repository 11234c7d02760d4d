"""Between the readers and the consumer: slots, byte grants, host blocks and their leases."""
