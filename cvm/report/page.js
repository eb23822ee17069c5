"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const ascending = head.getAttribute("aria-sort") !== "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      const rows = [...table.tBodies[0].rows].map((row) => {
        const cell = row.cells[column];
        return { row, number: cell.dataset.v, text: cell.textContent.trim() };
      });
      const order = (a, b) => {
        if (a.number === undefined) return a.text.localeCompare(b.text, "en", { numeric: true });
        return Number(a.number) - Number(b.number);
      };
      rows.sort((a, b) => {
        if ((a.number === "") !== (b.number === "")) return a.number === "" ? 1 : -1;
        return ascending ? order(a, b) : order(b, a);
      });
      table.tBodies[0].append(...rows.map((item) => item.row));
    });
  });
}
