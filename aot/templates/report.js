"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const tip = document.getElementById("tip");
  const count = (number) => number.toString().replace(/\B(?=(\d{3})+$)/g, ",");
  const range = (first, last) => (first === last ? `step ${first}` : `steps ${first} to ${last}`);

  // What is shown of the thing that is pointed at: a bold title, then lines. Always as text.
  function show(title, lines, x, y) {
    const bold = document.createElement("b");
    bold.textContent = title;
    tip.replaceChildren(bold, ...lines.filter(Boolean).map((line) => Object.assign(document.createElement("div"), { textContent: line })));
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(x + 14, innerWidth - box.width - 8))}px`;
    tip.style.top = `${y + 18 + box.height > innerHeight ? Math.max(8, y - box.height - 12) : y + 18}px`;
  }
  function hide() { tip.hidden = true; }
  function place(element, event) {
    if (event && event.clientX !== undefined) return [event.clientX, event.clientY];
    const box = element.getBoundingClientRect();
    return [box.left + box.width / 2, box.top + Math.min(box.height, 24)];
  }

  function aboutBuffer(entry, number) {
    const [label, content, region, layers, why, row, bytes, offset, first, last] = data.entries[entry].buffers[number];
    const text = (at) => data.strings[at];
    return [
      text(label) + (row < 0 ? "" : ` [row ${row}]`),
      [
        `${count(bytes)} bytes at offset ${count(offset)}${text(region) && ` of ${text(region)}`}${text(content) && `, ${text(content)}`}`,
        `${range(first, last)}${text(layers) && `; ${text(layers)}`}`,
        text(why),
      ],
    ];
  }

  // Things that can be pointed at: one of a group is in the order of tabs, arrow keys go to the others.
  function group(elements, about) {
    elements.forEach((element, at) => {
      element.setAttribute("tabindex", at ? "-1" : "0");
      const point = (event) => {
        const [title, lines, lit] = about(element);
        element.setAttribute("aria-label", [title, ...lines].join(". "));
        document.querySelectorAll(".lit").forEach((one) => one.classList.remove("lit"));
        (lit || []).forEach((one) => one.classList.add("lit"));
        show(title, lines, ...place(element, event));
      };
      element.addEventListener("pointerenter", point);
      element.addEventListener("pointermove", point);
      element.addEventListener("click", point);
      element.addEventListener("focus", () => point());
      element.addEventListener("pointerleave", hide);
      element.addEventListener("blur", hide);
      element.addEventListener("keydown", (event) => {
        const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
        if (event.key === "Escape") hide();
        if (!move || !elements[at + move]) return;
        event.preventDefault();
        element.setAttribute("tabindex", "-1");
        elements[at + move].setAttribute("tabindex", "0");
        elements[at + move].focus();
      });
    });
  }

  document.querySelectorAll("[data-entry]").forEach((section) => {
    const entry = Number(section.dataset.entry);
    const bars = [...section.querySelectorAll(".bar")];
    group(bars, (bar) => {
      const own = bars.filter((one) => one.dataset.buffer === bar.dataset.buffer);
      return [...aboutBuffer(entry, Number(bar.dataset.buffer)), own];
    });
    const boxes = [...section.querySelectorAll(".box")];
    section.querySelectorAll(".graph").forEach((graph) =>
      group([...graph.querySelectorAll(".box")], (box) => {
        const [title, ...rest] = box.dataset.about.split(": ");
        const same = (one) => (one.dataset.node && box.dataset.nodes ? box.dataset.nodes.split(" ").includes(one.dataset.node)
          : one.dataset.layer && box.dataset.layers ? box.dataset.layers.split(" ").includes(one.dataset.layer) : false);
        return [title, [rest.join(": ")], boxes.filter(same)];
      }));
    const curve = section.querySelector(".curve");
    if (curve) curveAt(curve, data.entries[entry]);
  });

  function curveAt(curve, { steps, needed, x: places }) {
    const cursor = curve.querySelector(".cursor");
    let at = 0;
    const point = (event) => {
      const [layer, y0, y1] = steps[at];
      const x = (places[at] + places[at + 1]) / 2;
      cursor.setAttribute("x1", x);
      cursor.setAttribute("x2", x);
      cursor.style.visibility = "visible";
      const name = layer < 0 ? "control flow, or a request for weights" : `${data.strings[layer]}, rows ${y0} to ${y1 - 1}`;
      show(`step ${at}: ${count(needed[at])} bytes`, [name], ...place(curve, event));
      curve.setAttribute("aria-label", `step ${at}: ${count(needed[at])} bytes, ${name}`);
    };
    const leave = () => { hide(); cursor.style.visibility = "hidden"; };
    const move = (event) => {
      const box = curve.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * curve.viewBox.baseVal.width;
      at = Math.max(0, Math.min(steps.length - 1, places.findIndex((place) => place > x) - 1));
      if (x >= places[steps.length]) at = steps.length - 1;
      point(event);
    };
    curve.addEventListener("pointermove", move);
    curve.addEventListener("click", move);
    curve.addEventListener("pointerleave", leave);
    curve.addEventListener("focus", () => point());
    curve.addEventListener("blur", leave);
    curve.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!by) return;
      event.preventDefault();
      at = Math.max(0, Math.min(steps.length - 1, at + by));
      point();
    });
  }

  // Columns sort by click, Enter or space: numbers from the largest down, text upwards; once more turns the order.
  document.querySelectorAll("table.sortable").forEach((table) => {
    const heads = [...table.querySelectorAll("thead th")];
    const body = table.tBodies[0];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const numeric = head.classList.contains("n");
        const before = head.getAttribute("aria-sort");
        const down = before ? before === "ascending" : numeric;
        heads.forEach((one) => one.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const key = (row) => {
          const cell = row.cells[column];
          return numeric ? Number(cell.dataset.value ?? -1) : cell.textContent.trim();
        };
        const order = (a, b) => (numeric ? key(a) - key(b) : key(a).localeCompare(key(b), "en"));
        body.append(...[...body.rows].sort((a, b) => (down ? -order(a, b) : order(a, b))));
      });
    });
  });

  document.querySelectorAll(".zoom").forEach((bar) => {
    const svg = document.getElementById(bar.dataset.of).querySelector("svg");
    const natural = svg.viewBox.baseVal.width;
    const fits = bar.dataset.fits !== undefined;
    let factor = 1;
    const apply = () => {
      const base = fits ? Math.max(svg.parentElement.clientWidth - 2, 928) : natural;
      svg.style.width = fits && factor === 1 ? "" : `${base * factor}px`;
      svg.style.height = "auto";
      bar.querySelector("output").textContent = `${Math.round(factor * 100)} %`;
    };
    bar.querySelectorAll("button").forEach((button) =>
      button.addEventListener("click", () => {
        const by = Number(button.dataset.by);
        factor = by ? Math.max(0.25, Math.min(8, factor * by)) : 1;
        apply();
      }));
  });
  document.documentElement.dataset.ready = "yes";
})();
