for (const form of document.querySelectorAll("form.filters")) {
  const rows = [...form.parentElement.querySelectorAll("tr[data-labels]")];
  const choices = [...form.querySelectorAll("select")];
  const said = form.querySelector("output");
  const filter = () => {
    const wanted = choices.map((choice) => choice.value).filter((value) => value !== "");
    let count = 0;
    for (const row of rows) {
      const labels = row.dataset.labels.split(" ");
      row.hidden = !wanted.every((value) => labels.includes(value));
      count += row.hidden ? 0 : 1;
    }
    said.textContent = `${count} of ${rows.length} rows`;
  };
  for (const choice of choices) choice.addEventListener("change", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  filter();
}
