"""alluvia.events"""
