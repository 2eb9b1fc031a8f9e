"""alluvia.operations.compaction"""
