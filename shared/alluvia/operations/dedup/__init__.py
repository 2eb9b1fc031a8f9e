"""alluvia.operations.dedup"""
