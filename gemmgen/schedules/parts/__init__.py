"""What schedules are described with: the record, tiles, what several of them share."""
