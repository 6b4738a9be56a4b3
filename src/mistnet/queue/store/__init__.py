"""The queue in SQL: claims, settlements, upkeep, inspection."""
