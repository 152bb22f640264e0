"""What a job keeps in memory, stage by stage and part by part, and what would make it fit."""
