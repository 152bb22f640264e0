"""Jobs of training: what each rank does, estimated without a trace or made from one."""
