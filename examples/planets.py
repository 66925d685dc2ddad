MOONS = {"earth": 1, "mars": 2, "neptune": 16}


def moons(planet: str) -> int | None:
    """Tell how many moons a planet has.

    >>> moons("Mars")
    2
    """
    return MOONS.get(planet.lower())
