import{b as r}from"./chunk-JFD72BWG.js";import{m18 as e}from"./core-V7AUFDQ6.js";var o=e.default;function u({params:t}){return r(o,{run:t.run})}export{u as default};
