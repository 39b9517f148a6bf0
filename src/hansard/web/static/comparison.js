for (const form of document.querySelectorAll("form.filters")) {
  const rows = [...form.parentElement.querySelectorAll("tr[data-labels]")];
  const choices = [...form.querySelectorAll("select")];
  const output = form.querySelector("output");
  const filter = () => {
    const values = choices.map((choice) => choice.value).filter((value) => value !== "");
    let count = 0;
    for (const row of rows) {
      const labels = row.dataset.labels.split(" ");
      row.hidden = !values.every((value) => labels.includes(value));
      count += row.hidden ? 0 : 1;
    }
    output.textContent = `${count} of ${rows.length} rows`;
  };
  for (const choice of choices) choice.addEventListener("change", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  filter();
}
