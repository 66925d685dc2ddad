from toolformer.benchmarks.loaders.sources import as_splits

QUESTIONS = {"How many moons has Mars?": ["2", "two"], "How many moons has the Earth?": ["1", "one"]}


def rows(**metadata):
    """One row for each question; `metadata` is the task's, with what the evaluation adds."""
    questions = [
        {"id": str(number), "question": question, "answers": answers}
        for number, (question, answers) in enumerate(QUESTIONS.items())
    ]
    return as_splits("moons_quiz", questions, metadata)
