"""The table as a picture: step time of each contender over the best unlimited one, a panel a model."""

COLOURS = {"plain": "#9aa5b1", "checkpoint": "#c98b2e", "offload": "#8e5bb5", "swap": "#b5382a",
           "fio": "#6b7785", "sentinel": "#1f7a8c", "toll": "#7fb7c2"}


def draw(results, path):
    """SVG or PNG by the name's ending. Throws ImportError without matplotlib."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    models = list(results)
    figure, axes = pyplot.subplots(len(models), 1, figsize=(9, 2.6 * len(models)), squeeze=False)
    for axis, model in zip(axes[:, 0], models):
        rows = [row for row in results[model]["rows"] if row["ms"]]
        best = min(row["ms"] for row in rows if row["share"] is None)
        labels = [row["label"] for row in rows]
        axis.barh(labels, [row["ms"] / best for row in rows], color=[COLOURS[row["kind"]] for row in rows])
        for at, row in enumerate(rows):
            axis.text(row["ms"] / best, at, f" {row['ms']:.0f} ms", va="center", fontsize=7)
            if row.get("bound_ms"):
                axis.plot([row["bound_ms"] / best] * 2, [at - 0.45, at + 0.45], color="black", linewidth=1.5)
        axis.set_xscale("log")
        axis.invert_yaxis()
        axis.tick_params(labelsize=8)
        axis.set_title(model, fontsize=10, loc="left")
    axes[-1, 0].set_xlabel("step time over the fastest with unlimited memory; a black mark is the bound")
    figure.tight_layout()
    figure.savefig(path)
