"""alluvia.engine"""
