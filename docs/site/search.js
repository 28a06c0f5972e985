// SPDX-License-Identifier: Apache-2.0
// docs/site/search.js - the search of the site: every section of the chapters and everything the reference describes.
// search_index, of search-index.js: [[title, where, address, text], ...]
"use strict";

function found_for(query) {
  const words = query.toLowerCase().split(/[^\p{L}\p{N}_]+/u).filter((word) => word !== "");
  const score = ([title, where, , text]) => {
    const name = title.toLowerCase();
    let sum = 0;
    for (const word of words) {
      const in_text = text.toLowerCase().split(word).length - 1;
      const here = name === word ? 100 : name.startsWith(word) ? 40 : name.includes(word) ? 20 : 0;
      const beside = where.toLowerCase().includes(word) ? 3 : 0;
      if (here + beside + in_text === 0) return 0;
      sum += here + beside + Math.min(in_text, 5);
    }
    return sum / (1 + name.length / 200);
  };
  return search_index.map((entry) => [score(entry), entry]).filter(([points]) => points > 0)
    .sort(([left], [right]) => right - left).slice(0, 40).map(([, entry]) => entry);
}

document.addEventListener("DOMContentLoaded", () => {
  const box = document.createElement("input");
  Object.assign(box, { id: "site-search", type: "search", placeholder: "Search", autocomplete: "off" });
  box.setAttribute("aria-label", "Search");
  const list = document.createElement("ol");
  list.id = "site-search-results";
  list.hidden = true;
  document.body.append(list);
  (document.getElementById("titlearea") || document.body).append(box);
  box.addEventListener("input", () => {
    const hits = found_for(box.value);
    list.hidden = box.value.trim() === "";
    list.replaceChildren(...hits.map(([title, where, address, text]) => {
      const item = document.createElement("li"), link = document.createElement("a"), about = document.createElement("span");
      link.href = address;
      link.textContent = title;
      about.textContent = where + (text ? " — " + text.slice(0, 140) : "");
      item.append(link, about);
      return item;
    }));
    if (hits.length === 0) list.textContent = "Nothing found";
  });
  box.addEventListener("keydown", (event) => {
    const first = list.querySelector("a");
    if (event.key === "Enter" && first) location.href = first.href;
    if (event.key === "Escape") list.hidden = true;
  });
  list.addEventListener("click", () => { list.hidden = true; });
});
