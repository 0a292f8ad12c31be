// The page whose title has the words of the search comes first, the reference and the gallery last.
var Scorer = {
  score: ([docname, title, anchor, , score]) => {
    const query = (new URLSearchParams(location.search).get("q") || "").trim().toLowerCase();
    const isTitle = !anchor && title.toLowerCase().includes(query);
    return score + (isTitle ? 30 : 0) - (/^(api|gallery)\//.test(docname) ? 5 : 0);
  },
  // The defaults of Sphinx.
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
